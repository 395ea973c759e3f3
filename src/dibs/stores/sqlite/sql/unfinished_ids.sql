-- Unfinished jobs as a bulk verb sees them. {where} is what a filter makes of itself, see filters.py.
SELECT id, state, flow FROM dibs_jobs WHERE {where}
