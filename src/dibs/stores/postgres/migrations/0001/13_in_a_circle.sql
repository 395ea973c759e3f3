-- Whether some of `steps` steps need each other in a circle. `needed` and `needing` are the places of the two ends of
-- each need, in the order of the needed one.
create function dibs.in_a_circle(steps integer, needed integer[], needing integer[]) returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    unmet integer[] := array_fill(0, array[steps]);
    first integer[] := array_fill(null::integer, array[steps]);
    free integer[];
    next integer := 1;
    need integer;
begin
    for need in reverse coalesce(cardinality(needed), 0)..1 loop
        unmet[needing[need]] := unmet[needing[need]] + 1;
        first[needed[need]] := need;
    end loop;
    free := array(select place from unnest(unmet) with ordinality as each (many, place) where many = 0);
    while next <= cardinality(free) loop
        need := first[free[next]];
        while needed[need] = free[next] loop
            unmet[needing[need]] := unmet[needing[need]] - 1;
            if unmet[needing[need]] = 0 then
                free := free || needing[need];
            end if;
            need := need + 1;
        end loop;
        next := next + 1;
    end loop;
    return cardinality(free) < steps;
end
$$;
