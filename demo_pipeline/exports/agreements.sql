-- Queries that must find no trajectory. A title: `-- what is wrong: the views that it needs`.

-- its number of steps differs between trajectories.parquet and steps.parquet: steps trajectories
SELECT trajectory_id FROM trajectories
LEFT JOIN (SELECT trajectory_id, count(*) AS found FROM steps GROUP BY 1)
USING (trajectory_id) WHERE steps <> coalesce(found, 0) ORDER BY 1;

-- its hidden actions differ between trajectories.parquet and hidden_actions.parquet: hidden_actions trajectories
SELECT trajectory_id FROM trajectories
LEFT JOIN (SELECT trajectory_id, count(*) AS found FROM hidden_actions GROUP BY 1)
USING (trajectory_id) WHERE hidden_actions <> coalesce(found, 0) ORDER BY 1;

-- an SFT sample shows a step that is not in steps.parquet: sft steps
SELECT DISTINCT trajectory_id FROM sft ANTI JOIN steps
USING (trajectory_id, step_index) ORDER BY 1;

-- its split differs between sft and messages: messages sft
SELECT DISTINCT trajectory_id FROM
(SELECT trajectory_id, split FROM sft) JOIN
(SELECT trajectory_id, split AS other FROM messages) USING (trajectory_id)
WHERE split <> other ORDER BY 1;
