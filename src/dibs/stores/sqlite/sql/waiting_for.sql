-- Those who wait for a step that is about to succeed: whoever had its result before knows its epoch.
-- ?1 id of the step
SELECT step, need FROM dibs_needs INDEXED BY dibs_needed WHERE need = ?1 AND epoch IS NULL
