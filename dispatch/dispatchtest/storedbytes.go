package dispatchtest

import (
	"github.com/carillonhq/carillon/dispatch/upkeep"
)

// Unmended puts off the correction of the count of bytes, so that a test sees the uncorrected count.
func (h *Carillon) Unmended() {
	h.T.Helper()
	h.Exec(`
		INSERT INTO tally (tenant_id, cohort_id, counted_at) VALUES ($1, -2, now() + interval '1 day')
		ON CONFLICT (tenant_id, cohort_id) DO UPDATE SET counted_at = excluded.counted_at`, h.Tenant)
}

// WantBytesCounted compares the count of bytes with the rows.
func (h *Carillon) WantBytesCounted() {
	h.T.Helper()
	all, err := upkeep.Scan(h.T.Context(), h.Pool, true)
	if err != nil {
		h.T.Fatal(err)
	}
	for _, b := range all {
		if b.Name == "miscounted_bytes" && b.Rows > 0 {
			h.T.Errorf("%d %s", b.Rows, b.Meaning)
		}
	}
}
