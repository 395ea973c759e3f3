-- Whether a claimable job is not to be started (again): its lease expired, and a cancel was asked or no attempt is left, or
-- its time to expire has come. Where it is a matter of microseconds the same is written out.
create function dibs.is_over(job dibs.job, moment timestamptz) returns boolean
language sql immutable
as $$
    select coalesce(job.expires_at <= moment, false)
        or (job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts))
$$;
