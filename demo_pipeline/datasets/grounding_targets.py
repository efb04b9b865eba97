"""Whether the words of a grounding prompt name one element of the screen and no other.

Belongs here: the prompts of steps (`prompt_style = "grounding"`). The elements that the grounding
export asks for are in `grounding_elements`; both compare names in the same way.
"""

from demo_pipeline.common.json_files import JsonFileError
from demo_pipeline.datasets.grounding_elements import is_told_apart
from demo_pipeline.datasets.prompts import grounding_prompt
from demo_pipeline.datasets.screen_nodes import ShownScreen, read_screen_nodes
from demo_pipeline.formats.desktopd.reader import StepFiles
from demo_pipeline.formats.desktopd.vocabulary import CANVAS_HEIGHT, CANVAS_WIDTH

_CANVAS = (0, 0, CANVAS_WIDTH, CANVAS_HEIGHT)


def names_one_element(step: StepFiles) -> bool:
    """Whether a step has a grounding prompt, and its words fit no other element of its tree.

    What is around the target or inside it, named in the same way, is no other element. A target
    that its tree does not have is compared with nothing; a tree that cannot be read does not tell
    it apart.
    """
    target = step.action.target_element
    if target is None or not grounding_prompt(step.action):
        return False
    try:
        screen = ShownScreen(read_screen_nodes(step.ui_tree), "")  # any platform: what is in front
    except (JsonFileError, LookupError, TypeError, ValueError, AttributeError):
        return False
    position = next((n for n, node in enumerate(screen.nodes) if node.id == target.id), None)
    return position is None or is_told_apart(screen, position, _CANVAS)
