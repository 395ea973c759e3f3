-- The smallest priority above `lane` that has jobs in the queue. Where the caller knows a place in a lane, it counts
-- as having jobs, and the dead index entries before that place are not walked.
create function dibs.next_lane(queue text, lane integer, known smallint[]) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    above constant integer := (select min(p) from unnest(known) as p where p > lane);
begin
    return coalesce(
        (
            select job.priority from dibs.job
            where job.queue = next_lane.queue and job.unmet = 0
                and job.priority > lane and job.priority < coalesce(above, 32768)
            order by job.priority
            limit 1
        ),
        above
    );
end
$$;
