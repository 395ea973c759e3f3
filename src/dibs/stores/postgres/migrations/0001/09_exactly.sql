-- An interval as so many microseconds, whatever days or months it was written in: a day that is added to a time would
-- otherwise be as long as it is in the time zone of the session.
create function dibs.exactly(span interval) returns interval
language sql immutable strict parallel safe
as $$ select make_interval(secs => extract(epoch from span)::double precision) $$;
