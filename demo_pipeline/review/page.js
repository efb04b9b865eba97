"use strict";
// The script of the review page: the queue, a demonstration and its steps. Texts of recordings are
// only put into text nodes, never into HTML. A decision stays in localStorage until the server has
// stored it. It has an id, so that a decision that is sent twice is stored once.

const base = location.pathname;
const $ = (id) => document.getElementById(id);
const state = {
  queue: null, rows: [], demo: null, step: 0, video: false, picking: "", hover: null, loads: 0,
  frames: null, videoTime: null, zoom: null, pointer: null,
};
const canvas = $("canvas"), video = $("video"), timeline = $("timeline");
const images = new Map(), trees = new Map();
const CANVAS = { width: 1920, height: 1080 };

// --- small helpers

function element(name, { text, ...properties } = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  if (text !== undefined) node.textContent = text;
  node.append(...children);
  return node;
}

function fill(id, ...children) { $(id).replaceChildren(...children); }

function facts(id, pairs) {
  const filled = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  fill(id, ...filled.flatMap(([name, value]) => [
    element("dt", { text: name }), element("dd", { text: String(value) })]));
}

function named(node) { return node.name ? `${node.role} “${node.name}”` : node.role; }

function counted(number, word) { return `${number} ${word}${number === 1 ? "" : "s"}`; }

function plain(name) { return name.replaceAll("_", " "); }

function round(value, digits = 1) {
  return value === null || value === undefined ? null : Number(value).toFixed(digits);
}

let toastTimer;
function toast(text) {
  $("toast").textContent = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $("toast").textContent = ""; }, 8000);
}

async function read(path) {
  const answer = await fetch(base + path);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

function effective(step) {
  return state.demo.judgement.actions[step.index] ?? step.action;
}

// --- the outbox: decisions that the server may not have yet

const OUTBOX = "outbox:";
let sending = false;

function outbox() {
  return Object.keys(localStorage).filter((key) => key.startsWith(OUTBOX))
    .map((key) => JSON.parse(localStorage.getItem(key))).sort((a, b) => a.at - b.at);
}

function decide(kind, value) {
  if (!state.demo) return;
  const id = crypto.randomUUID().replaceAll("-", "");
  const item = { id, demo: state.demo.id, version: state.demo.version, kind, value, at: Date.now() };
  localStorage.setItem(OUTBOX + id, JSON.stringify(item));
  predict();
  showDemonstration();
  showSaving();
  send();
}

// Shows decisions before the server has stored them: adds them to the decisions that it sent, and
// works out which decisions apply.
function predict() {
  const { demo } = state, byId = new Map(demo.decisions.map((decision) => [decision.id, decision]));
  for (const { id, demo: name, kind, value, refused } of outbox()) {
    if (name !== demo.id || refused || byId.has(id)) continue;
    const pending = { id, kind, value, author: state.queue?.author, undone: false, stale: false, pending: true };
    demo.decisions.push(pending);
    byId.set(id, pending);
    const target = kind === "undo" && byId.get(value.decision);
    if (target && target.kind !== "undo") target.undone = true;
    else if (target && byId.has(target.value.decision)) byId.get(target.value.decision).undone = false;
  }
  const holds = { status: "open", success: null, instruction: null, bad_steps: [], trim: null, actions: {} };
  for (const { kind, value, undone, stale } of demo.decisions) {
    if (undone || stale) continue;
    if (kind === "approve") holds.status = "approved";
    if (kind === "reject") holds.status = "rejected";
    if (kind === "outcome") holds.success = value.success;
    if (kind === "instruction") holds.instruction = value.text;
    if (kind === "bad_step") holds.bad_steps.push(value.step);
    if (kind === "trim") holds.trim = [value.first, value.last];
    if (kind === "action") {
      const recorded = demo.steps.find((step) => step.index === value.action.step_index)?.action;
      holds.actions[value.action.step_index] = { ...recorded, ...value.action };
    }
  }
  demo.judgement = holds;
}

async function send() {
  if (sending) return;
  sending = true;
  try {
    for (const item of outbox()) {
      if (!item.refused) await sendOne(item);
    }
  } catch {
    setTimeout(send, 1000);
  } finally {
    sending = false;
    showSaving();
  }
  if (outbox().some((item) => !item.refused)) setTimeout(send, 1000);
}

async function sendOne(item) {
  const { id, version, kind, value } = item;
  const answer = await fetch(`${base}api/demonstrations/${item.demo}/decisions`, {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ id, version, kind, value }),
  });
  if (answer.status >= 500 || answer.status === 403) throw new Error("not saved");
  const got = await answer.json();
  if (answer.status === 409) {
    localStorage.setItem(OUTBOX + id, JSON.stringify({ ...item, refused: true }));
    toast("This demonstration was built again. Look at the new version, then send it again.");
    if (state.demo?.id === item.demo) await open(item.demo, state.step);
    return;
  }
  localStorage.removeItem(OUTBOX + id);
  if (state.demo?.id !== item.demo) return;
  if (!answer.ok) {
    toast(got.faults.join("; "));
    await open(item.demo, state.step);
  } else if (got.decisions) {
    state.demo.decisions = got.decisions;
    predict();
    showDemonstration();
    markRow(item.demo, state.demo);
  }
}

function showSaving() {
  const waiting = outbox().length;
  $("saving").textContent = waiting ? `${waiting} not saved yet` : "All saved";
  $("saving").className = waiting ? "waiting" : "faint";
  if (state.demo) showDecisions();
}

// --- the queue

async function loadQueue() {
  const queue = await read("api/queue");
  state.queue = queue;
  $("author").textContent = `as ${queue.author}`;
  showQueue();
}

function isShown(row) {
  const show = $("show").value, words = $("filter").value.toLowerCase().split(/\s+/);
  const text = [row.id, row.instruction, row.application, ...row.signals.map(([n]) => plain(n))]
    .join(" ").toLowerCase();
  const fits = {
    all: true, open: row.review === "open", flagged: row.flagged, stale: row.stale > 0,
    approved: row.review === "approved", rejected: row.review === "rejected",
  }[show];
  return (fits || row.id === state.demo?.id) && words.every((word) => text.includes(word));
}

function showQueue() {
  const { rows } = state.queue;
  state.rows = rows.filter(isShown);
  fill("queue", ...(state.rows.length ? state.rows.map(queueItem)
    : [element("li", { className: "empty", text: "No demonstration matches the search and the filter." })]));
  const watched = rows.filter((row) => row.review !== "open").length;
  const doubtful = rows.filter((row) => row.flagged && row.review === "open").length;
  $("progress").textContent =
    `${watched} of ${rows.length} reviewed · watch these ${doubtful} of ${rows.length}`;
}

function queueItem(row) {
  const marks = [];
  if (row.review !== "open") {
    marks.push(element("span", { className: `mark ${row.review}`, text: row.review }));
  }
  if (row.stale) marks.push(element("span", { className: "mark stale", text: `${row.stale} stale` }));
  if (row.corrected) marks.push(element("span", { className: "mark approved", text: "✎" }));
  const score = element("span", {
    className: row.flagged ? "score high" : "score", text: row.doubt.toFixed(1),
    title: "doubt: sum of the signals' points",
  });
  const why = row.signals.map(([name, count]) => (count > 1 ? `${plain(name)} ×${count}` : plain(name)));
  if (row.near.length) why.push(`like ${row.near.join(", ")}`);
  const item = element("li", { title: `${row.id}\n${row.instruction}` },
    element("div", { className: "line" }, element("span", { className: "id", text: row.id }),
      ...marks, score),
    element("div", { className: "words", text: `${row.application} · ${row.instruction}` }),
    element("div", { className: "why", text: why.join(", ") || "\u00a0" }));
  item.dataset.id = row.id;
  item.classList.toggle("chosen", row.id === state.demo?.id);
  item.onclick = () => open(row.id);
  return item;
}

function markRow(id, got) {
  const row = state.queue?.rows.find((other) => other.id === id);
  if (!row) return;
  const holds = got.judgement;
  row.review = holds.status;
  row.stale = got.decisions.filter((decision) => decision.stale).length;
  row.corrected = holds.success !== null || holds.instruction !== null || holds.trim !== null
    || holds.bad_steps.length > 0 || Object.keys(holds.actions).length > 0;
  showQueue();
}

function nextDemonstration(by) {
  const place = state.rows.findIndex((row) => row.id === state.demo?.id);
  const row = state.rows[place + by];
  if (row) open(row.id);
}

// --- a demonstration

async function open(id, step = 0) {
  const load = ++state.loads;
  let demo;
  try {
    demo = await read(`api/demonstrations/${encodeURIComponent(id)}`);
  } catch (error) {
    return toast(error.message);
  }
  if (load !== state.loads) return undefined; // another demonstration was opened meanwhile
  const isOther = state.demo?.id !== demo.id;
  Object.assign(state, { demo, picking: "", hover: null });
  predict();
  if (isOther) {
    Object.assign(state, { video: false, frames: null, videoTime: null });
    video.removeAttribute("src");
    video.load();
    images.clear();
    trees.clear();
  }
  document.title = `${demo.id} – Review`;
  document.body.classList.remove("picking");
  $("words").value = localStorage.getItem(`draft:${id}`) ?? demo.judgement.instruction ?? demo.task.instruction;
  $("remark").value = localStorage.getItem(`remark:${id}`) ?? "";
  goTo(Math.min(step, demo.steps.length - 1));
  showDemonstration();
  for (const item of $("queue").children) {
    item.classList.toggle("chosen", item.dataset.id === id);
    if (item.dataset.id === id) item.scrollIntoView({ block: "nearest" });
  }
  return undefined;
}

function showDemonstration() {
  const { demo } = state, holds = demo.judgement;
  $("instruction").textContent = holds.instruction ?? demo.task.instruction;
  const done = holds.success ?? demo.result.success;
  fill("facts", ...[
    demo.id, demo.task.application, counted(demo.steps.length, "step"),
    done ? "task done" : `not done (${demo.result.error_message ?? "by review"})`,
    `${round(demo.result.completion_time_ms / 1000)} s`, demo.about.platform,
    demo.hidden ? counted(demo.hidden, "hidden action") : "",
    holds.trim ? `steps ${holds.trim[0]} to ${holds.trim[1]} kept` : "",
  ].filter(Boolean).map((text) => element("span", { text })));
  fill("verdict-buttons",
    button("Approve", "a", () => decide("approve", {}), holds.status === "approved" && "approved"),
    button("Reject", "r", askReason, holds.status === "rejected" && "rejected"),
    button(done ? "Task done" : "Task not done", "o", () => decide("outcome", { success: !done }), holds.success !== null && "on"));
  fill("signals", ...demo.signals.map(signalLine));
  const { clock } = demo;
  facts("clock", clock ? [
    ["clock", `${plain(clock.method)}, ±${round(clock.uncertainty_ms, 0)} ms`],
    ["origin", `${round(clock.documented_offset_ms, 0)} ms after meta.timestamp`],
    ["agreement", clock.score === null ? null : `${round(clock.score * 100, 0)} % of ${clock.moves} moves`],
    ["recorded", `${demo.about.recorded_at.slice(0, 19).replace("T", " ")} UTC, ${demo.about.status} ${demo.about.reason}`],
  ] : [["clock", "no evidence in the store"]]);
  showDecisions();
  showSteps();
  showStep();
}

function signalLine([name, count]) {
  const [points, definition] = state.queue?.signals[name] ?? [0, ""];
  return element("li", { title: `${points} points` },
    element("b", { text: count > 1 ? `${plain(name)} ×${count}` : plain(name) }),
    element("span", { text: definition }));
}

function button(text, key, act, on) {
  const node = element("button", { type: "button", onclick: () => { act(); node.blur(); } },
    `${text} `, element("kbd", { text: key }));
  if (on) node.classList.add("on", on);
  return node;
}

function showDecisions() {
  const waiting = outbox().filter((item) => item.demo === state.demo.id && item.refused).map((item) =>
    element("li", {}, element("span", { className: "stale", text: `${inWords(item)} — for an older version` }),
      element("button", { type: "button", text: "Send for this version", onclick: () => resend(item) }),
      element("button", { type: "button", text: "Drop", onclick: () => drop(item) })));
  const latest = new Set(); // subjects: the latest of contradicting decisions applies
  const items = state.demo.decisions.filter((decision) => decision.kind !== "undo").reverse().map((decision) => {
    const about = { approve: "verdict", reject: "verdict", note: decision.id, bad_step: decision.id, thought: `thought ${decision.value.step}`, step_verdict: `verdict ${decision.value.step}`, action: `step ${decision.value.action?.step_index}` }[decision.kind] ?? decision.kind;
    const replaced = latest.has(about);
    if (!decision.undone && !decision.stale) latest.add(about);
    const item = element("li", { className: decision.undone ? "undone" : replaced ? "replaced" : "", title: `${decision.author}, ${decision.time ?? "not saved yet"}` },
      element("span", { text: `${inWords(decision)} · ${decision.pending ? "not saved yet" : decision.author}` }));
    if (decision.stale) item.append(element("b", { className: "stale", text: "stale", title: "does not apply: it is about an older version whose steps differ" }));
    item.append(element("button", { type: "button", text: decision.undone ? "Redo" : "Undo",
      onclick: () => (decision.undone ? redo(decision) : decide("undo", { decision: decision.id })) }));
    return item;
  });
  showInForce();
  fill("decisions", ...waiting, ...(items.length || waiting.length ? items
    : [element("li", { className: "faint", text: "None yet." })]));
}

// Shows which decisions apply, and the last decision with its undo; this part is always visible.
function showInForce() {
  const { status } = state.demo.judgement, last = own().filter((decision) => !decision.undone).at(-1);
  fill("in-force", element("b", { className: status, text: status === "open" ? "not reviewed" : status }),
    element("span", { className: "faint", text: last ? inWords(last) : "", title: last ? inWords(last) : "" }),
    ...(last ? [button("Undo", "u", undoLast)] : []));
}

function inWords({ kind, value }) {
  switch (kind) {
    case "approve": return "approve";
    case "reject": return `reject: ${plain(value.reason)}${value.text ? ` (${value.text})` : ""}`;
    case "outcome": return value.success ? "task done" : "task not done";
    case "instruction": return `instruction: ${value.text}`;
    case "bad_step": return `step ${value.step} is bad`;
    case "trim": return `keep steps ${value.first} to ${value.last}`;
    case "action": return `step ${value.action.step_index}: ${value.action.reasoning ?? "corrected"}`;
    case "note": return `note${value.step === null || value.step === undefined ? "" : ` on step ${value.step}`}: ${value.text}`;
    case "thought": return `thought of step ${value.step}: ${value.text}`;
    case "private_box": return `a part of step ${value.step} is ${value.private ? "" : "not "}private`;
    case "step_verdict": return `step ${value.step} is ${value.correct ? "correct" : "incorrect"}`;
    case "undo": return "undo";
    default: return kind;
  }
}

function drop(item) { localStorage.removeItem(OUTBOX + item.id); showSaving(); }
function resend(item) { drop(item); decide(item.kind, item.value); }

function own() {
  return state.demo.decisions.filter((decision) => decision.kind !== "undo" && decision.author === state.queue.author);
}

function undoLast() {
  const mine = own().filter((decision) => !decision.undone);
  if (mine.length) decide("undo", { decision: mine.at(-1).id });
  else toast("There is nothing to undo.");
}

function redo(decision) {
  const undo = state.demo.decisions.filter((other) => other.kind === "undo" && other.value.decision === decision.id);
  if (undo.length) decide("undo", { decision: undo.at(-1).id });
}

function redoLast() {
  const gone = new Set(own().filter((decision) => decision.undone).map((decision) => decision.id));
  const undos = state.demo.decisions.filter((decision) => decision.kind === "undo" && gone.has(decision.value.decision));
  if (undos.length) decide("undo", { decision: undos.at(-1).id });
}

// --- steps

function showSteps() {
  const { judgement: holds, steps } = state.demo;
  fill("steps", ...steps.map((step, place) => {
    const item = element("li", { text: `${step.index} ${plain(step.action.action_type)}`, title: effective(step).reasoning });
    const names = {
      "doubtful": (step.triage.doubt ?? 0) >= 1, "bad-step": holds.bad_steps.includes(step.index),
      "cut": isCut(step), "corrected": step.index in holds.actions, "chosen": place === state.step,
    };
    for (const [name, is] of Object.entries(names)) item.classList.toggle(name, is);
    item.onclick = () => goTo(place);
    return item;
  }));
  $("steps").children[state.step]?.scrollIntoView({ block: "nearest", inline: "center" });
}

function isCut(step) {
  const { trim } = state.demo.judgement;
  return Boolean(trim) && (step.index < trim[0] || step.index > trim[1]);
}

function goTo(place) {
  const { demo } = state;
  if (!demo || place < 0 || place >= demo.steps.length) return;
  Object.assign(state, { step: place, video: false, hover: null, videoTime: null });
  stopPicking();
  video.pause();
  history.replaceState(null, "", `#${encodeURIComponent(demo.id)}/${demo.steps[place].index}`);
  [...$("steps").children].forEach((item, at) => item.classList.toggle("chosen", at === place));
  $("steps").children[place]?.scrollIntoView({ block: "nearest", inline: "center" });
  showStep();
  for (const at of [place, place + 1, place - 1, place + 2]) {
    if (demo.steps[at]) picture(demo.steps[at]);
  }
}

function current() { return state.demo.steps[state.step]; }

function showStep() {
  const step = current(), action = effective(step), holds = state.demo.judgement;
  $("step-title").textContent = `Step ${step.index}: ${plain(action.action_type)}`;
  $("sentence").textContent = action.reasoning;
  fill("step-signals", ...(step.triage.signals ?? []).map((name) => signalLine([name, 1])));
  showParameters(step, action);
  const target = action.target_element;
  fill("target", element("span", { className: "faint", text: "target" }),
    element("span", { text: target ? named(target) : "none" }),
    button("Pick", "t", () => pick("target")), button("None", "T", () => correct({ target_element: null })));
  facts("evidence", [
    ["screenshot", screenshotFacts(step)],
    ["clock", `${plain(step.clock_method)}, ±${round(step.clock_uncertainty_ms, 0)} ms${step.unproven_clock ? ", unproven" : ""}`],
    ["tree", `${step.freshness}, ${step.tree_agreement}${step.tree_age_ms === null ? "" : `, ${round(step.tree_age_ms / 1000)} s old`}`],
    ["text", textFacts(step)],
    ["idle", step.triage.idle_s === null || step.triage.idle_s === undefined ? null : `${round(step.triage.idle_s)} s before`],
    ["changed", step.triage.changed_share === undefined ? null : `${round(step.triage.changed_share * 100, 2)} % of the screen after`],
  ]);
  fill("step-buttons",
    button("Bad step", "b", markBad, holds.bad_steps.includes(step.index) && "rejected"),
    button("First", "[", () => trim("first"), holds.trim?.[0] === step.index && "on"),
    button("Last", "]", () => trim("last"), holds.trim?.[1] === step.index && "on"),
    button("Correct", "y", () => sayCorrect(true), latestValue("step_verdict")?.correct && "on"),
    button("Incorrect", "w", () => sayCorrect(false), latestValue("step_verdict")?.correct === false && "rejected"));
  fill("annotations", ...state.demo.annotations.filter((note) => note.step_index === step.index).map((note) =>
    element("li", { className: note.stale ? "undone" : note.effective ? "" : "replaced", title: `${note.author}, ${note.time}` },
      element("span", { text: `${plain(note.kind)}: ${JSON.parse(note.value)} · ${note.source}` }),
      ...(note.stale ? [element("b", { className: "stale", text: "stale" })] : []),
      ...(note.disagrees ? [element("b", { className: "stale", text: "disagrees" })] : []))));
  if (document.activeElement !== $("thought")) $("thought").value = latestValue("thought")?.text ?? "";
  fill("history", ...state.demo.steps.slice(0, state.step).filter((before) => !isCut(before)).map((before, place) =>
    element("li", { text: `${before.index}. ${effective(before).reasoning}`, onclick: () => goTo(place),
      className: holds.bad_steps.includes(before.index) ? "bad-step" : "" })));
  showTree(step);
  draw();
}

// Says why the frame was chosen, how long before the press it was shown, and whether it is a leak.
function screenshotFacts(step) {
  const lead = step.lead_ms === null ? "" : `, ${round(step.lead_ms, 0)} ms before the press`;
  const leak = step.leak ? `, leak${step.unavoidable ? " that no earlier frame avoids" : ""}` : "";
  return `${plain(step.reason_code)}${lead}${leak}`;
}

// Says whether the scans confirm the typed text, and how the text was read.
function textFacts(step) {
  if (!step.text_evidence) return null;
  const scan = step.text_scan_event === null || step.text_evidence === "unseen" ? "by the scans" : `by the scan in line ${step.text_scan_event}`;
  const read = step.text_source === "field" ? "taken from the field" : `read by the layout ${step.keyboard_layout}`;
  return `${step.text_evidence} ${scan}, ${read}${step.doubtful_text ? ", in doubt" : ""}`;
}

const CHOICES = { direction: ["up", "down", "left", "right"], button: ["left", "right", "middle"] };

function showParameters(step, action) {
  const fields = Object.entries(action.parameters).flatMap(([name, value]) => {
    const list = Array.isArray(value);
    const input = CHOICES[name]
      ? element("select", {}, ...CHOICES[name].map((choice) => element("option", { text: choice, value: choice })))
      : element("input", { type: typeof value === "number" ? "number" : "text", step: "any" });
    Object.assign(input, { id: `p-${name}`, name, value: list ? value.join(" ") : value });
    const kind = list ? "list" : typeof value;
    input.dataset.kind = kind;
    if (kind !== "number" && !CHOICES[name]) input.className = "wide";
    return [element("label", { text: plain(name), htmlFor: `p-${name}` }), input];
  });
  fill("parameters", ...fields, ...(fields.length
    ? [element("button", { type: "submit" }, "Save parameters ", element("kbd", { text: "e, Enter" }))] : []));
}

$("parameters").onsubmit = (event) => {
  event.preventDefault();
  const values = {};
  for (const input of $("parameters").elements) {
    if (!input.name) continue;
    values[input.name] = { number: () => Number(input.value), list: () => input.value.split(/\s+/).filter(Boolean) }[input.dataset.kind]?.() ?? input.value;
  }
  document.activeElement?.blur();
  correct({ parameters: values });
};

function correct(change) {
  const step = current(), action = effective(step);
  const { parameters, target_element } = action;
  decide("action", { action: { step_index: step.index, parameters, target_element, ...change } });
}

// Returns the latest decision of a kind about the step.
function latestValue(kind) {
  return state.demo.decisions.filter((decision) => decision.kind === kind && !decision.undone && !decision.stale && decision.value.step === current().index).at(-1)?.value;
}

function sayCorrect(correct) { decide("step_verdict", { step: current().index, correct }); }

function markBad() {
  const { index } = current();
  const marks = state.demo.decisions.filter((decision) => decision.kind === "bad_step" && !decision.undone && !decision.stale && decision.value.step === index);
  if (marks.length) marks.forEach((decision) => decide("undo", { decision: decision.id }));
  else decide("bad_step", { step: index });
}

function trim(end) {
  const { steps, judgement } = state.demo, { index } = current();
  const [first, last] = judgement.trim ?? [steps[0].index, steps.at(-1).index];
  const wanted = end === "first" ? [index, Math.max(index, last)] : [Math.min(first, index), index];
  if (wanted[0] !== first || wanted[1] !== last) decide("trim", { first: wanted[0], last: wanted[1] });
}

// --- screenshot, video and tree

function fileOf(step, kind) {
  return `${base}files/${state.demo.id}/${state.demo.version}/${step.index}/${kind}`;
}

function picture(step) {
  const url = fileOf(step, "screenshot");
  if (!images.has(url)) {
    const image = new Image();
    image.onload = () => { if (state.demo && fileOf(current(), "screenshot") === url) draw(); };
    image.onerror = () => toast("The screenshot of this step cannot be read.");
    image.src = url;
    images.set(url, image);
    if (images.size > 16) images.delete(images.keys().next().value);
  }
  return images.get(url);
}

async function treeOf(step) {
  const url = fileOf(step, "tree");
  if (!trees.has(url)) {
    trees.set(url, fetch(url).then((answer) => answer.json()).then(flat));
    if (trees.size > 16) trees.delete(trees.keys().next().value);
  }
  return trees.get(url);
}

function flat(tree) {
  const nodes = [], pending = [[tree.root, 0]];
  while (pending.length) {
    const [node, depth] = pending.pop();
    nodes.push({ id: node.id, role: node.role, name: node.name, bounds: node.bounds, depth, states: node.states ?? [] });
    for (const child of (node.children ?? []).toReversed()) pending.push([child, depth + 1]);
  }
  return nodes;
}

async function showTree(step) {
  const nodes = await treeOf(step).catch(() => []);
  if (!state.demo || current() !== step) return;
  state.nodes = nodes;
  const words = $("tree-filter").value.toLowerCase(), chosen = effective(step).target_element?.id;
  const shown = nodes.filter((node) => `${node.role} ${node.name} ${node.id}`.toLowerCase().includes(words));
  fill("tree", ...shown.slice(0, 3000).map((node) => {
    const item = element("li", { title: `${node.id} ${node.states.join(", ")}` },
      element("em", { text: `${node.role} ` }), node.name);
    item.style.paddingLeft = `${6 + (words ? 0 : Math.min(node.depth, 20) * 8)}px`;
    item.dataset.id = node.id;
    item.classList.toggle("chosen", node.id === chosen);
    item.onmouseenter = () => { state.hover = node; draw(); };
    item.onmouseleave = () => { state.hover = null; draw(); };
    item.onclick = () => { if (state.picking === "target") choose(node); else { state.hover = node; draw(); } };
    return item;
  }));
  const marked = $("tree").querySelector(".chosen");
  if (marked) $("tree").scrollTop = marked.offsetTop - $("tree").clientHeight / 2;
  draw();
}

function boxOf(step) {
  const target = effective(step).target_element;
  const node = target && state.nodes?.find((other) => other.id === target.id);
  return node?.bounds ?? null;
}

function draw() {
  if (!state.demo) return;
  const pen = canvas.getContext("2d"), step = current();
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, CANVAS.width, CANVAS.height);
  const image = picture(step);
  if (state.video && video.videoWidth) {
    const { videoWidth: width, videoHeight: height } = video;
    const scale = Math.min(CANVAS.width / width, CANVAS.height / height);
    pen.drawImage(video, (CANVAS.width - width * scale) / 2, (CANVAS.height - height * scale) / 2, width * scale, height * scale);
  } else if (image.complete && image.naturalWidth) pen.drawImage(image, 0, 0);
  if (!state.video) overlay(pen, step);
  if (state.hover) outline(pen, state.hover.bounds, "#1e90ff", named(state.hover));
  const mode = state.picking ? `Pick the ${state.picking}: click it, Esc ends`
    : state.video ? "Video" : `Screenshot of step ${step.index}${isCut(step) ? " (trimmed off)" : ""}`;
  $("mode").textContent = mode;
  const shown = state.videoTime ?? step.pts;
  $("time").textContent = `${round(shown, 3) ?? "?"} s`;
  canvas.dataset.shown = image.complete && !state.video ? `${state.demo.id}/${step.index}` : "";
  drawTimeline();
}

// Returns the boxes that detectors found or people marked in a screenshot, without cleared ones.
function privateParts(step) {
  const same = (a, b) => ["x", "y", "width", "height"].every((side) => a[side] === b[side]);
  const decisions = state.demo.decisions.filter((decision) => decision.kind === "private_box" && !decision.undone && !decision.stale && decision.value.step === step.index);
  const marked = decisions.filter((decision) => decision.value.private).map((decision) => ({ ...decision.value, kind: "private" }));
  const cleared = decisions.filter((decision) => !decision.value.private).map((decision) => decision.value);
  const detected = state.demo.private.filter((part) => part.step === step.index);
  return [...detected, ...marked].filter((part) => !cleared.some((other) => same(part, other)));
}

function overlay(pen, step) {
  for (const part of privateParts(step)) outline(pen, part, "#b046d8", plain(part.kind));
  const action = effective(step), at = action.parameters, box = boxOf(step);
  if (box) outline(pen, box, "#19b35a", named(action.target_element));
  const points = at.start_x === undefined ? (at.x === undefined ? [] : [[at.x, at.y]]) : [[at.start_x, at.start_y], [at.end_x, at.end_y]];
  pen.lineWidth = 4;
  pen.strokeStyle = "#ff3b30";
  points.forEach(([x, y]) => {
    pen.beginPath();
    pen.arc(x, y, 16, 0, 2 * Math.PI);
    pen.moveTo(x - 5, y); pen.lineTo(x + 5, y); pen.moveTo(x, y - 5); pen.lineTo(x, y + 5);
    pen.stroke();
  });
  if (points.length === 2) {
    pen.beginPath();
    pen.moveTo(...points[0]);
    pen.lineTo(...points[1]);
    pen.stroke();
  }
}

function outline(pen, box, colour, label) {
  const unit = CANVAS.width / (canvas.clientWidth || CANVAS.width), high = 20 * unit; // unit: canvas pixels for each pixel of the page
  pen.lineWidth = 2 * unit;
  pen.strokeStyle = colour;
  pen.strokeRect(box.x, box.y, box.width, box.height);
  pen.font = `${13 * unit}px system-ui, sans-serif`;
  const text = label.length > 60 ? `${label.slice(0, 59)}…` : label, wide = pen.measureText(text).width + 8 * unit;
  const top = box.y >= high ? box.y - high : Math.min(box.y + box.height, CANVAS.height - high);
  const left = Math.max(0, Math.min(box.x, CANVAS.width - wide));
  pen.fillStyle = colour;
  pen.fillRect(left, top, wide, high);
  pen.fillStyle = "#fff";
  pen.fillText(text, left + 4 * unit, top + 15 * unit);
}

// --- the timeline

function span() {
  const { video: filmed, timeline: line } = state.demo;
  return filmed ? [filmed.first, Math.max(filmed.last, filmed.first + 0.001)] : line ? [0, 1] : null;
}

function drawTimeline() {
  const { demo } = state, range = span(), style = getComputedStyle(document.body);
  const colour = (name) => style.getPropertyValue(`--${name}`);
  const wide = timeline.clientWidth * devicePixelRatio;
  if (timeline.width !== wide) timeline.width = wide;
  if (timeline.height !== 56 * devicePixelRatio) timeline.height = 56 * devicePixelRatio;
  const pen = timeline.getContext("2d");
  pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  pen.clearRect(0, 0, timeline.clientWidth, 56);
  if (!range || !demo.timeline) return;
  const at = (time) => 4 + (timeline.clientWidth - 8) * (time - range[0]) / (range[1] - range[0]);
  const bar = (from, to, top, height, name) => {
    pen.fillStyle = colour(name);
    pen.fillRect(at(from), top, Math.max(3, at(to) - at(from)), height);
  };
  for (const scan of demo.timeline.scans) bar(scan.from, scan.to, 44, 5, "scan");
  const places = new Map(demo.steps.map((step, place) => [step.index, place]));
  for (const action of demo.timeline.actions) {
    if (action.hidden !== null) {
      pen.strokeStyle = colour("bad");
      pen.lineWidth = 2;
      pen.strokeRect(at(action.from), 10, 5, 22);
      continue;
    }
    const place = places.get(action.step), step = demo.steps[place];
    if (!step) continue;
    bar(action.from, action.to, 8, 26, step.action.action_type === "wait" ? "wait" : "act");
    if (step.leak) bar(action.from, action.from, 36, 5, "bad");
    if (place === state.step) {
      pen.strokeStyle = colour("accent");
      pen.lineWidth = 2;
      pen.strokeRect(at(action.from) - 3, 4, Math.max(3, at(action.to) - at(action.from)) + 6, 34);
    }
  }
  const shown = state.videoTime ?? current().pts;
  if (shown !== null) {
    pen.fillStyle = colour("text");
    pen.fillRect(at(shown) - 0.5, 0, 1, 56);
  }
}

// Returns the time under the pointer, and the nearest bar if it is less than six pixels away.
function barAt(event) {
  const range = span();
  if (!range || !state.demo?.timeline) return { bar: null, time: null };
  const pixel = (range[1] - range[0]) / (timeline.clientWidth - 8);
  const time = range[0] + (event.offsetX - 4) * pixel;
  const distance = (action) => Math.max(action.from - time, time - action.to, 0);
  const [nearest] = [...state.demo.timeline.actions].sort((a, b) => distance(a) - distance(b));
  return { bar: nearest && distance(nearest) < 6 * pixel ? nearest : null, time };
}

timeline.onclick = (event) => {
  const { bar, time } = barAt(event);
  if (bar && bar.step !== null) goTo(state.demo.steps.findIndex((step) => step.index === bar.step));
  else if (time !== null) showVideo(time);
};

timeline.onmousemove = (event) => {
  const { bar } = barAt(event);
  const step = bar && state.demo.steps.find(({ index }) => index === bar.step);
  if (!bar) timeline.title = "";
  else if (bar.hidden !== null) timeline.title = `hidden action: ${plain(bar.hidden)}`;
  else timeline.title = step ? `step ${step.index}: ${effective(step).reasoning}` : "";
};

// --- the video

async function showVideo(time) {
  const { demo } = state;
  if (demo.redacted) return toast("The video is not shown, because it contains private data that is redacted here.");
  if (!demo.video) return toast("The video is not in the store.");
  if (!video.src) {
    video.src = `${base}api/demonstrations/${demo.id}/video`;
    video.onerror = () => toast("The video cannot be played: it was removed or replaced.");
  }
  state.frames ??= await read(`api/demonstrations/${demo.id}/frames`).catch(() => null);
  if (state.demo !== demo || !state.frames) return undefined;
  state.video = true;
  const place = state.frames.findLastIndex((pts) => pts <= time + 0.0005);
  return seek(Math.max(0, place));
}

const TRIES = 10;
let sought = null;  // the requested frame, until it is shown

function seek(place) {
  const { frames } = state, pts = frames[Math.max(0, Math.min(place, frames.length - 1))];
  const next = frames.find((other) => other > pts) ?? pts + 0.04;
  const mine = sought = { pts, next };
  // The player seeks the middle of the frame's time, because rounding of its start could lead to the
  // frame before. On a busy machine a seek may end without a frame; it is then repeated.
  const go = (tries) => {
    if (sought !== mine || !state.video) return;
    if (tries === TRIES || !video.seeking) video.currentTime = (pts + next) / 2;
    if (tries) setTimeout(go, 1000, tries - 1);
  };
  if (video.readyState) go(TRIES);
  else video.addEventListener("loadedmetadata", () => go(TRIES), { once: true });  // an earlier seek may get lost
  state.videoTime = pts;
  draw();
}

// The requested frame may be shown before or after the seek ends. Frames of earlier seeks are ignored.
let presented = null;
function onFrame(_now, { mediaTime }) {
  presented = mediaTime;
  if (sought && mediaTime > sought.pts - 0.001 && mediaTime < sought.next) sought = null;
  showFrame();
  video.requestVideoFrameCallback(onFrame);
}

function showFrame() {
  if (!state.video || video.seeking || presented === null) return;
  state.videoTime = presented;
  canvas.dataset.pts = presented.toFixed(2);
  draw();
}
video.onseeked = showFrame;
video.requestVideoFrameCallback(onFrame);

function toggleVideo() {
  if (!state.video) return showVideo(current().pts ?? state.demo.video?.first ?? 0);
  video.pause();
  Object.assign(state, { video: false, videoTime: null });
  return draw();
}

async function play() {
  if (!state.video) await toggleVideo();
  sought = null;
  if (video.paused) video.play().catch(() => {}); else video.pause();
}
video.onplay = video.onpause = () => { $("play").textContent = video.paused ? "▶" : "❚❚"; };
$("play").onclick = () => { play(); $("play").blur(); };

async function frameBy(by) {
  if (!state.video) await toggleVideo();
  video.pause();
  if (state.frames) seek(state.frames.findLastIndex((pts) => pts <= (state.videoTime ?? 0) + 0.0005) + by);
}

// --- 100 % around the pointer, and panning

function toggleZoom() {
  if (state.zoom) return setZoom(null);
  const box = $("screen").getBoundingClientRect(), at = effective(current()).parameters;
  const [x, y] = state.pointer ? placeOf(state.pointer)
    : [at.x ?? at.start_x ?? CANVAS.width / 2, at.y ?? at.start_y ?? CANVAS.height / 2];
  const [left, top] = state.pointer ? [state.pointer.clientX - box.left, state.pointer.clientY - box.top] : [box.width / 2, box.height / 2];
  return setZoom([left - x, top - y]);
}

function setZoom(place) {
  const { clientWidth: width, clientHeight: height } = $("screen");
  const within = (value, seen, whole) => (seen > whole ? (seen - whole) / 2 : Math.max(seen - whole, Math.min(0, value)));
  state.zoom = place && [within(place[0], width, CANVAS.width), within(place[1], height, CANVAS.height)];
  $("screen").classList.toggle("zoomed", Boolean(place));
  $("zoom-button").classList.toggle("on", Boolean(place));
  canvas.style.left = state.zoom ? `${state.zoom[0]}px` : "";
  canvas.style.top = state.zoom ? `${state.zoom[1]}px` : "";
  draw();
}

let dragged = null;
canvas.onpointerdown = (event) => {
  dragged = state.zoom && { x: event.clientX, y: event.clientY, from: state.zoom, moved: false };
  if (dragged) canvas.setPointerCapture(event.pointerId);
};
canvas.onpointermove = (event) => {
  state.pointer = event;
  if (!dragged || !event.buttons) return;
  const [dx, dy] = [event.clientX - dragged.x, event.clientY - dragged.y];
  dragged.moved ||= Math.hypot(dx, dy) > 4;
  if (dragged.moved) setZoom([dragged.from[0] + dx, dragged.from[1] + dy]);
};
canvas.onpointerleave = () => { state.pointer = null; };

// --- all steps in a grid, with filters

const FILTERS = [
  ["action", (step) => [plain(step.action)]],
  ["application", (step) => [step.application]],
  ["leak", (step) => [step.leak ? "leak" : "no leak"]],
  ["doubt", (step) => [step.doubt >= 1 ? "doubtful" : "not doubtful"]],
  ["decision", (step) => [step.review === "open" ? "not reviewed" : step.review, ...(step.bad ? ["bad step"] : [])]],
];
const SHOWN = 600; // most tiles at once; filters lead to the others
let allSteps = [];

async function toggleGrid() {
  if (!$("grid").hidden) { $("grid").hidden = true; fill("tiles"); return; }
  try { allSteps = (await read("api/steps")).steps; } catch (error) { toast(error.message); return; }
  $("grid").hidden = false;
  fill("grid-filters", ...FILTERS.map(([name, of]) => {
    const before = $(`by-${name}`)?.value ?? "";
    const values = [...new Set(allSteps.flatMap(of))].sort();
    const select = element("select", { id: `by-${name}`, onchange: showTiles, ariaLabel: name },
      element("option", { value: "", text: `any ${name}` }), ...values.map((text) => element("option", { value: text, text })));
    select.value = values.includes(before) ? before : "";
    return select;
  }), orderChoice(), element("span", { id: "tile-count", className: "faint" }), button("Close", "g", toggleGrid));
  showTiles();
}

function orderChoice() {
  const select = element("select", { id: "by-order", onchange: showTiles, ariaLabel: "order" },
    element("option", { value: "doubt", text: "most doubtful first" }),
    element("option", { value: "recorded", text: "in recorded order" }));
  select.value = $("by-order")?.value ?? "doubt";
  return select;
}

function showTiles() {
  const fits = allSteps.filter((step) => FILTERS.every(([name, of]) => !$(`by-${name}`).value || of(step).includes($(`by-${name}`).value)));
  if ($("by-order").value === "doubt") fits.sort((a, b) => b.doubt - a.doubt); // the sort is stable: equal doubt stays in recorded order
  $("tile-count").textContent = counted(fits.length, "step") + (fits.length > SHOWN ? `, the first ${SHOWN} shown` : "");
  fill("tiles", ...fits.slice(0, SHOWN).map(tile));
}

function tile(step) {
  const image = element("img", { loading: "lazy", alt: "", src: `${base}files/${step.demo}/${step.version}/${step.index}/screenshot` });
  const target = step.target_role ? named({ role: step.target_role, name: step.target_name }) : "";
  const remarks = [step.bad ? "bad step" : "", ...step.signals.map(plain)].filter(Boolean);
  const item = element("li", { onclick: async () => { await toggleGrid(); await open(step.demo, step.place); } },
    element("div", { className: "shot" }, image, actionMark(step)),
    element("div", { className: "does" }, element("b", { text: `${step.index}` }), ` ${actionWords(step)}`),
    ...(target ? [element("div", { className: "faint", text: target })] : []),
    element("div", { className: "line" }, element("span", { className: "id faint", text: step.demo }),
      element("span", { className: step.doubt >= 1 ? "score high" : "score", text: step.doubt.toFixed(1), title: "doubt: sum of the signals' points" })),
    ...(remarks.length ? [element("div", { className: "why", text: remarks.join(", ") })] : []));
  item.classList.toggle("bad-step", step.bad);
  return item;
}

// Describes the action in words, with the whole typed text.
function actionWords(step) {
  const detail = { type: step.text === null ? "" : `“${step.text}”`, hotkey: (step.keys ?? []).join("+"), scroll: `${step.direction} ${step.amount}` };
  return `${plain(step.action)} ${detail[step.action] ?? ""}`.trim();
}

// Draws the target's box, and the points of the action with the line of a drag, in canvas pixels.
function actionMark(step) {
  const shape = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const mark = shape("svg", { viewBox: `0 0 ${CANVAS.width} ${CANVAS.height}`, class: "action-mark" });
  if (step.box) {
    const [x, y, width, height] = step.box;
    mark.append(shape("rect", { x, y, width, height, class: "target-box" }));
  }
  for (const [cx, cy] of step.points) mark.append(shape("circle", { cx, cy, r: 36 }));
  if (step.points.length === 2) {
    const [[x1, y1], [x2, y2]] = step.points;
    mark.append(shape("line", { x1, y1, x2, y2 }));
  }
  return mark;
}

// --- picking a target or a point in the screenshot

function pick(what) {
  state.video = false;
  Object.assign(state, { picking: what, corner: null });
  document.body.classList.add("picking");
  draw();
}

function stopPicking() {
  if (!state.picking) return;
  state.picking = "";
  state.hover = null;
  document.body.classList.remove("picking");
}

function placeOf(event) {
  const box = canvas.getBoundingClientRect();
  return [Math.round((event.clientX - box.left) / box.width * CANVAS.width), Math.round((event.clientY - box.top) / box.height * CANVAS.height)];
}

function nodeAt([x, y]) {
  const inside = (state.nodes ?? []).filter(({ bounds: box }) => x >= box.x && y >= box.y && x < box.x + box.width && y < box.y + box.height);
  return inside.sort((a, b) => a.bounds.width * a.bounds.height - b.bounds.width * b.bounds.height)[0];
}

canvas.onmousemove = (event) => {
  if (state.picking !== "target") return;
  state.hover = nodeAt(placeOf(event)) ?? null;
  draw();
};

canvas.onclick = (event) => {
  if (dragged?.moved) return;
  if (state.picking === "target") {
    const node = nodeAt(placeOf(event));
    if (node) choose(node);
  } else if (state.picking === "private part") {
    markPrivate(placeOf(event));
  } else if (state.picking === "place") {
    const [x, y] = placeOf(event), { parameters } = effective(current());
    stopPicking();
    correct({ parameters: { ...parameters, ...(parameters.x === undefined ? { start_x: x, start_y: y } : { x, y }) } });
  }
};

// A click in a marked box clears the box. Two clicks elsewhere are the corners of a new box.
function markPrivate([x, y]) {
  const step = current().index;
  const hit = privateParts(current()).find((box) => x >= box.x && y >= box.y && x < box.x + box.width && y < box.y + box.height);
  if (state.corner) {
    const [left, right] = [x, state.corner[0]].sort((a, b) => a - b), [top, bottom] = [y, state.corner[1]].sort((a, b) => a - b);
    stopPicking();
    if (right > left && bottom > top) decide("private_box", { step, x: left, y: top, width: right - left, height: bottom - top, private: true });
  } else if (hit) {
    const { x: left, y: top, width, height } = hit;
    stopPicking();
    decide("private_box", { step, x: left, y: top, width, height, private: false });
  } else state.corner = [x, y];
}

function choose(node) {
  stopPicking();
  const { id, role, name } = node;
  correct({ target_element: { id, role, name } });
}

function pickPlace() {
  const { parameters } = effective(current());
  if (parameters.x === undefined && parameters.start_x === undefined) toast("This action has no place on the screen.");
  else pick("place");
}

// --- text fields and reasons

function keepDraft(id, prefix, kind, recorded) {
  const area = $(id);
  const draftKey = () => state.demo && `${prefix}:${state.demo.id}`;
  area.oninput = () => { if (draftKey()) localStorage.setItem(draftKey(), area.value); };
  area.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      const text = area.value.replace(/^\s*\n/, "").trimEnd();  // indentation stays
      localStorage.removeItem(draftKey());
      if (text && text !== recorded()) decide(...kind(text));
      area.blur();
    } else if (event.key === "Escape") {
      localStorage.removeItem(draftKey());
      area.value = recorded();
      area.blur();
      event.stopPropagation();
    }
  };
}

keepDraft("words", "draft", (text) => ["instruction", { text }], () => state.demo.judgement.instruction ?? state.demo.task.instruction);
keepDraft("remark", "remark", (text) => { $("remark").value = ""; return ["note", { text, step: current().index }]; }, () => "");
keepDraft("thought", "thought", (text) => ["thought", { text, step: current().index }], () => latestValue("thought")?.text ?? "");

function askReason() {
  $("reject-text").value = "";
  fill("reasons", ...state.queue.reasons.map((reason, place) =>
    element("li", { onclick: () => reject(reason) }, element("kbd", { text: String(place + 1) }), ` ${plain(reason)}`)));
  $("reject").showModal();
  $("reject").focus();
}

function reject(reason) {
  decide("reject", { reason, text: $("reject-text").value.trim() });
  $("reject").close();
}

$("reject").onkeydown = (event) => {
  const reason = state.queue.reasons[Number(event.key) - 1];
  if (reason && event.target !== $("reject-text")) {
    event.preventDefault();
    reject(reason);
  }
};

// --- keys

const KEYS = [
  [["ArrowRight", "j"], "→ j", "next step", () => goTo(state.step + 1)],
  [["ArrowLeft", "k"], "← k", "previous step", () => goTo(state.step - 1)],
  [["Home"], "Home", "first step", () => goTo(0)],
  [["End"], "End", "last step", () => goTo(state.demo.steps.length - 1)],
  [["n", "ArrowDown"], "n ↓", "next demonstration", () => nextDemonstration(1)],
  [["p", "ArrowUp"], "p ↑", "previous demonstration", () => nextDemonstration(-1)],
  [["a"], "a", "approve", () => decide("approve", {})],
  [["r"], "r", "reject, with a reason", askReason],
  [["o"], "o", "task done or not done", () => decide("outcome", { success: !(state.demo.judgement.success ?? state.demo.result.success) })],
  [["b"], "b", "step is bad, or no longer bad", markBad],
  [["y"], "y", "step is correct", () => sayCorrect(true)],
  [["w"], "w", "step is incorrect", () => sayCorrect(false)],
  [["h"], "h", "thought before this step; Enter saves", () => $("thought").focus()],
  [["["], "[", "trim: this is the first step", () => trim("first")],
  [["]"], "]", "trim: this is the last step", () => trim("last")],
  [["i"], "i", "correct the instruction; Enter saves", () => $("words").focus()],
  [["e"], "e", "correct parameters; Enter saves", () => $("parameters").querySelector("input, select")?.focus()],
  [["t"], "t", "pick another target in the screenshot or the tree", () => pick("target")],
  [["T"], "T", "the action has no target", () => correct({ target_element: null })],
  [["m"], "m", "mark a private part by two corners, or click a marked part to clear it", () => pick("private part")],
  [["x"], "x", "pick another place in the screenshot", pickPlace],
  [["c"], "c", "note on this step; Enter saves", () => $("remark").focus()],
  [["u"], "u", "undo the last decision", undoLast],
  [["U"], "U", "redo the undone decision", redoLast],
  [["z"], "z", "screenshot at 100 % around the pointer; drag moves it", toggleZoom],
  [["l"], "l", "show or hide the list of demonstrations", toggleList],
  [["g"], "g", "all steps in a grid, with filters", toggleGrid],
  [["f"], "f", "video at this step, or screenshot", toggleVideo],
  [[" "], "Space", "play or pause the video", play],
  [[","], ",", "video: one frame back", () => frameBy(-1)],
  [["."], ".", "video: one frame on", () => frameBy(1)],
  [["/"], "/", "search the tree", () => $("tree-filter").focus()],
  [["?"], "?", "these keys", () => $("help").showModal()],
];

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "Escape") {
    if (!$("grid").hidden) { toggleGrid(); return; }
    if (typing) event.target.blur();
    stopPicking();
    draw();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const match = KEYS.find(([keys]) => keys.includes(event.key));
  if (!match || (!state.demo && event.key !== "?") || (!$("grid").hidden && !"g?".includes(event.key))) return;
  event.preventDefault();
  match[3]();
});

// --- start

fill("keys", ...KEYS.map(([, shown, meaning]) => element("tr", {},
  element("td", {}, element("kbd", { text: shown })), element("td", { text: meaning }))));
$("help-button").onclick = () => $("help").showModal();
$("filter").oninput = $("show").onchange = () => { if (state.queue) showQueue(); };
$("tree-filter").oninput = () => { if (state.demo) showTree(current()); };
window.onresize = () => setZoom(state.zoom);

function toggleList(show = !document.body.classList.contains("list")) {
  document.body.classList.toggle("list", show);
  localStorage.setItem("list", show ? "1" : "");
  setZoom(state.zoom);
}
toggleList((localStorage.getItem("list") ?? (innerWidth >= 1700 ? "1" : "")) === "1");
for (const [name, act] of [["list", () => toggleList()], ["grid", toggleGrid], ["zoom", () => { if (state.demo) toggleZoom(); }]]) {
  $(`${name}-button`).onclick = () => { act(); $(`${name}-button`).blur(); };
}
matchMedia("(prefers-color-scheme: dark)").onchange = () => draw();
window.onhashchange = () => start();

async function start() {
  const [id, step] = decodeURIComponent(location.hash.slice(1)).split("/");
  try {
    if (!state.queue) await loadQueue();
  } catch (error) {
    toast(`The list of demonstrations cannot be loaded: ${error.message}`);
    return;
  }
  const chosen = id || state.rows[0]?.id;
  if (!chosen) return;
  await open(chosen);
  const place = state.demo?.steps.findIndex((other) => other.index === Number(step)) ?? -1;
  if (step && place > 0) goTo(place);
}

setInterval(() => { loadQueue().catch(() => {}); }, 15000);
showSaving();
send();
start();
