-- Refuses steps that dibs.limits would refuse: their number, names, circles and the usual rules of jobs.
create function dibs.check_steps(
    names text[], ids uuid[], queues text[], tasks text[], max_attempts smallint[], run_ats timestamptz[],
    needs text[], needed integer[], needing integer[]
) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if coalesce(cardinality(names), 0) not between 1 and 10000 then
        raise 'steps must be an array of 1 to 10000 steps' using errcode = 'check_violation';
    end if;
    perform dibs.check_names('the name, queue, task and needs of a step', names || queues || tasks || needs);
    perform dibs.check_times(run_ats);
    if exists (select from unnest(max_attempts) as most where most not between 1 and 1000) then
        raise 'max_attempts must be from 1 to 1000' using errcode = 'check_violation';
    end if;
    if (select count(distinct name) < cardinality(names) or count(distinct id) < cardinality(names)
        from unnest(names, ids) as step (name, id)) then
        raise 'each step must have a name and a job id of its own' using errcode = 'check_violation';
    end if;
    if exists (select from unnest(needs, needing) as need (name, place) group by place, name having count(*) > 1) then
        raise 'a step must name each of its needs once' using errcode = 'check_violation';
    end if;
    -- Where each step comes behind what it needs there is no circle.
    if exists (select from unnest(needed, needing) as need (one, other) where one >= other)
        and dibs.in_a_circle(cardinality(names), array_remove(needed, null), needing[1:cardinality(array_remove(needed, null))])
    then
        raise 'some of these steps need each other in a circle' using errcode = 'check_violation';
    end if;
end
$$;
