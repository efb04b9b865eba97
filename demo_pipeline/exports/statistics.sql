-- The tables of the statistics. A title: `-- name: the views that it needs`.

-- overview: trajectories
SELECT count(*) AS trajectories, count_if(success) AS successful,
       count_if(complete) AS complete, sum(steps)::BIGINT AS steps,
       sum(hidden_actions)::BIGINT AS hidden_actions,
       count(DISTINCT task_id) AS tasks,
       count(DISTINCT application) AS applications,
       count(osworld_task_id) AS benchmark,
       round(sum(completion_time_ms) / 60000, 1) AS minutes
FROM trajectories;

-- steps_per_trajectory: trajectories
SELECT difficulty, count(*) AS trajectories, min(steps) AS least,
       median(steps) AS median, round(avg(steps), 2) AS mean, max(steps) AS most
FROM trajectories GROUP BY 1
ORDER BY list_position(['easy', 'medium', 'hard'], difficulty);

-- applications: trajectories
SELECT application, count(*) AS trajectories, count_if(success) AS successful,
       sum(steps)::BIGINT AS steps
FROM trajectories GROUP BY 1 ORDER BY 2 DESC, 1;

-- actions: steps
SELECT action_type, count(*) AS steps,
       round(count(*) / sum(count(*)) OVER (), 4) AS share,
       round(median(end_ms - press_ms), 1) AS median_ms,
       count(target_width) AS with_target, count_if(leak) AS leaks,
       count(*) FILTER (opened_by_hover) AS opened_by_hover
FROM steps GROUP BY 1 ORDER BY 2 DESC, 1;

-- typed_texts: steps
SELECT text_evidence, text_source, keyboard_layout, count(*) AS texts,
       count_if(doubtful_text) AS doubtful
FROM steps WHERE text_evidence IS NOT NULL GROUP BY ALL ORDER BY 4 DESC, 1, 2, 3;

-- hidden_actions: hidden_actions
SELECT reason, count(*) AS actions, count(DISTINCT trajectory_id) AS trajectories
FROM hidden_actions GROUP BY 1 ORDER BY 2 DESC, 1;

-- frames: steps
SELECT reason_code, count(*) AS steps, round(median(lead_ms), 1) AS median_lead_ms,
       count_if(leak) AS leaks, round(avg(leak::INTEGER), 4) AS leak_rate
FROM steps GROUP BY 1 ORDER BY 2 DESC, 1;

-- leak_rates: steps
SELECT coalesce(action_type, 'all') AS action_type, count(*) AS pointer_actions,
       count(*) FILTER (leak) AS leaks,
       count(*) FILTER (leak AND unavoidable) AS unavoidable_leaks,
       round(leaks / greatest(pointer_actions, 1), 4) AS leak_rate,
       round(unavoidable_leaks / greatest(pointer_actions, 1), 4)
           AS unavoidable_leak_rate
FROM steps
WHERE action_type IN ('click', 'double_click', 'right_click', 'drag', 'scroll')
GROUP BY ROLLUP (action_type) ORDER BY grouping(action_type) DESC, 2 DESC, 1;

-- trees: steps
SELECT freshness, count(*) AS steps, round(median(tree_age_ms), 1) AS median_age_ms
FROM steps GROUP BY 1 ORDER BY 2 DESC, 1;

-- clocks: steps
SELECT clock_method, count(DISTINCT trajectory_id) AS trajectories,
       round(max(clock_uncertainty_ms), 1) AS worst_uncertainty_ms
FROM steps GROUP BY 1 ORDER BY 2 DESC, 1;

-- screens: steps
SELECT platform, round((1920 - 2 * pad_x) / scale)::BIGINT AS width,
       round((1080 - 2 * pad_y) / scale)::BIGINT AS height,
       count(DISTINCT trajectory_id) AS trajectories
FROM steps WHERE scale > 0 GROUP BY ALL ORDER BY 4 DESC, 1, 2, 3;

-- sft_splits: sft
SELECT split, count(*) AS samples, count(DISTINCT trajectory_id) AS trajectories,
       count(DISTINCT task_id) AS tasks
FROM sft GROUP BY 1
ORDER BY list_position(['train', 'val', 'test', 'held_out'], split);

-- messages_splits: messages
SELECT split, count(*) AS records, count(DISTINCT trajectory_id) AS trajectories
FROM messages GROUP BY 1
ORDER BY list_position(['train', 'val', 'test', 'held_out'], split);

-- message_tokens: messages
SELECT split, min(tokens) AS least, quantile_disc(tokens, 0.5) AS half,
       quantile_disc(tokens, 0.9) AS p90, quantile_disc(tokens, 0.99) AS p99, max(tokens) AS most
FROM messages GROUP BY 1
ORDER BY list_position(['train', 'val', 'test', 'held_out'], split);

-- exports: exports
SELECT export, status, version, any_value(bytes) AS bytes,
       count_if(records > 0) AS trajectories, sum(records)::BIGINT AS records
FROM exports GROUP BY ALL ORDER BY export;
