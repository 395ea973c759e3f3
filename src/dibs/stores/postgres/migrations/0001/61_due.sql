-- Those of the queues that may have due work: what a worker looks at when nobody woke it.
create function dibs.due(queues text[]) returns setof text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    moment constant timestamptz := dibs.clock();
    named text;
    lane integer;
begin
    foreach named in array queues loop
        continue when exists (select from dibs.queue where queue.name = named and queue.paused);
        lane := -32769;
        loop
            lane := dibs.next_lane(named, lane, null);
            exit when lane is null;
            if exists (
                select from dibs.job
                where job.queue = named and job.unmet = 0 and job.priority = lane and job.run_at <= moment
                    and (job.locked_until is null or job.locked_until <= moment)
                order by job.run_at, job.id
            ) then
                return next named;
                exit;
            end if;
        end loop;
    end loop;
end
$$;
