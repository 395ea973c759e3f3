-- Take and finish what is there; gives the arguments.
-- $1 queue
delete from public.bare
where id in (
    select id from public.bare where queue = $1 order by priority, run_at, id limit 100 for update skip locked
)
returning args
