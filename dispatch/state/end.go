package state

// End counts running ticks that ended, of schedules $2 of tenant $1: how many of each succeeded ($3) and failed ($4), and how many of
// all that ended were its own ($5) and ran aside ($6). The schedules are in rising order, so that two transactions lock them in one
// order. It is an UPDATE that returns for each schedule:
//
//	its id
//	how many ticks failed in a row, or 0 if none failed now
//	whether a buffered tick may be handed out: nothing runs aside, and either no own tick runs and one waits, or one aside waits
//	delay_at
const End = `
		UPDATE schedule_state st
		SET live = GREATEST(0, st.live - i.own), aside = GREATEST(0, st.aside - i.aside),
			succeeded = st.succeeded + i.good, failed = st.failed + i.bad,
			failures = CASE WHEN i.good > 0 THEN 0 ELSE st.failures + i.bad END
		FROM unnest($2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[]) AS i (id, good, bad, own, aside)
		WHERE st.tenant_id = $1 AND st.schedule_id = i.id
		RETURNING st.schedule_id, CASE WHEN i.bad > 0 THEN st.failures ELSE 0 END,
			st.aside = 0 AND (st.live = 0 AND st.buffered > 0 OR st.aside_buffered > 0), st.delay_at`
