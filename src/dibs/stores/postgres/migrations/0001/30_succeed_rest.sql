-- The end of dibs.succeed and dibs.succeed_alike where they have ended only so many as `accepted` says: the others are steps,
-- whose flows have to be locked before they are, or lost, or they were settled just so before. Returns the verdict of each.
create function dibs.succeed_rest(
    ids uuid[], epochs integer[], worker text, results json[], moment timestamptz, accepted integer
) returns text[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    size constant integer := cardinality(ids);
    workers constant text[] := array_fill(worker, array[size]);
begin
    if accepted + dibs.succeed_steps(ids, epochs, workers, results, moment) = size then
        return array_fill('accepted'::text, array[size]);
    end if;
    return dibs.verdicts(ids, epochs, workers, array_fill('succeeded'::text, array[size]));
end
$$;
