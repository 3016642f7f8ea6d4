package dispatchtest

// StoreDone stores n chunks that were done, and n answers that were given, long ago.
func (h *Carillon) StoreDone(n int) {
	h.T.Helper()
	h.Exec(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, workflows, items, swept_at, opened_at, done_at)
		SELECT 0, $1, 0, 'small', at, 1, 1, 1, '{w}', '\x00', at, at, at
		FROM (SELECT now() - interval '61 minutes' AS at FROM generate_series(1, $2::int)) n`, h.Tenant, n)
	h.Exec(`
		INSERT INTO idempotency (tenant_id, route, key, body_hash, status, answer, created_at)
		SELECT $1, '/v1/syncs', n::text, '\x00', 200, '{}', now() - interval '25 hours'
		FROM generate_series(1, $2::int) n`, h.Tenant, n)
}
