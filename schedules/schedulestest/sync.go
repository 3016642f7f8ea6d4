package schedulestest

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/carillonhq/carillon/schedules/bulk"
)

// SyncPath is the path of a sync of workflow w.
const SyncPath = "/v1/schedules/sync?workflow=w"

// Sync syncs a body. It returns a short text of each line of the answer, and the last line.
func (e *Site) Sync(query, body string) (told []string, end bulk.SyncEnd) {
	e.T.Helper()
	a := e.Ask("POST", SyncPath+query, body, "Content-Type", "application/x-ndjson")
	if a.Status != 200 {
		e.T.Fatalf("got %d %s", a.Status, a.Body)
	}
	for line := range strings.Lines(a.Body) {
		var r bulk.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			e.T.Fatal(err)
		}
		if r.Line == 0 {
			if err := json.Unmarshal([]byte(line), &end); err != nil {
				e.T.Fatal(err)
			}
			continue
		}
		text := fmt.Sprintf("%d %s %s", r.Line, r.Result, r.Key)
		if r.Error != nil {
			text += " " + r.Error.Code
		}
		told = append(told, text)
	}
	return told, end
}

// Stored returns workflow, key, version and status of each schedule of acme.
func (h *Fixture) Stored() string {
	h.T.Helper()
	return One[string](h, `SELECT COALESCE(string_agg(concat_ws(' ', workflow, key, version, status), ', ' ORDER BY workflow, key), '') FROM schedule WHERE tenant_id = $1`, h.Acme)
}

// SyncBulk syncs a body for acme without HTTP.
func (h *Fixture) SyncBulk(p bulk.SyncParams, body io.ReadCloser) (results []bulk.Result, sum bulk.SyncSummary, err error) {
	h.T.Helper()
	sum, _, err = h.InBulk.Sync(h.T.Context(), h.Acme, "ann", p, body, func(batch []bulk.Result) error {
		results = append(results, batch...)
		return nil
	})
	return results, sum, err
}
