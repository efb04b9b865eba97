-- What is counted for cards, from the tables `samples` and `provenance`.

-- demos: samples provenance
/* The canvas is 1920x1080; the screen is the canvas without its bars, divided by the scale. */
CREATE TABLE demos AS
SELECT s.trajectory_id, s.application, s.split, s.samples, p.split_group, p.platform,
       CASE WHEN p.scale > 0 THEN
            round((1920 - 2 * p.pad_x) / p.scale)::BIGINT || 'x'
            || round((1080 - 2 * p.pad_y) / p.scale)::BIGINT END AS resolution
FROM (SELECT trajectory_id, min(application) AS application, split, count(*) AS samples
      FROM samples GROUP BY trajectory_id, split) s
LEFT JOIN (SELECT trajectory_id, min(split_group) AS split_group, min(platform) AS platform,
                  min(scale) AS scale, min(pad_x) AS pad_x, min(pad_y) AS pad_y
           FROM provenance GROUP BY trajectory_id) p USING (trajectory_id);

-- totals: samples demos
SELECT (SELECT count(*) FROM samples), (SELECT count(DISTINCT trajectory_id) FROM demos),
       (SELECT count(DISTINCT split_group) FROM demos);

-- leaks: samples provenance
SELECT count(*), count(*) FILTER (leak), count(*) FILTER (leak AND unavoidable)
FROM samples JOIN provenance USING (trajectory_id, step_index)
WHERE list_contains(?, action_type);

-- splits: demos
SELECT split, sum(samples)::BIGINT, count(*), count(DISTINCT split_group)
FROM demos WHERE split IS NOT NULL GROUP BY split
ORDER BY list_position(['train', 'val', 'test', 'held_out'], split);

-- lengths: demos
SELECT samples, count(*) FROM demos GROUP BY 1 ORDER BY 1;
