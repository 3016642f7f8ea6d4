package dispatchtest

// ChunksGo inserts n chunks, then marks them as opened by a process, then as done: three transactions.
func (h *Carillon) ChunksGo(owner int64, n int) {
	h.T.Helper()
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT n % 4, $1, 0, 'small', now(), n, n, 1, '', clock_timestamp(), '{}' FROM generate_series(1, $2::int) n`, h.Tenant, n)
	h.Exec(`UPDATE chunk SET opened_at = clock_timestamp(), owner = $1, epoch = 1 WHERE opened_at IS NULL AND lane = 'small'`, owner)
	h.Exec(`UPDATE chunk SET done_at = clock_timestamp() WHERE owner = $1 AND done_at IS NULL`, owner)
}
