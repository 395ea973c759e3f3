-- A step is about to go: those who needed it need a job that will never be there, and no later one of the same id.
-- ?1 id, ?2 an id that no job has
UPDATE dibs_needs INDEXED BY dibs_needed SET need = ?2 WHERE need = ?1
