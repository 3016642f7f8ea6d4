package schedules

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// An export limits its memory: it reads at most so many schedules at once, and stops a read that exceeds so many bytes.
const (
	exportRows  = 500
	exportBytes = 2 << 20
)

// Export calls write with the schedules of a tenant in the order of workflow and key, some at a time. Each schedule is a line of a bulk
// upsert; an upsert of the line leaves the schedule unchanged. The export may or may not include a schedule that is made, changed or
// deleted meanwhile. Export ends with the first error of write.
func (s *Schedules) Export(ctx context.Context, tenant tenants.ID, f Filter, write func(lines [][]byte) error) error {
	if err := f.Check(""); err != nil {
		return err
	}
	for n, after := readFirst, (Position{}); ; {
		rows, full, err := s.exported(ctx, tenant, f, after, n)
		if err != nil {
			return err
		}
		lines := make([][]byte, len(rows))
		for i, r := range rows {
			if lines[i], err = r.line(); err != nil {
				return err
			}
		}
		held := web.Done(ctx, rows, (*row).held)
		if err := write(lines); err != nil || !full && len(rows) < n {
			return err
		}
		n = min(exportRows, fitting(exportBytes, held, len(rows)))
		if err := tenants.CheckAuthority(ctx); err != nil {
			return err
		}
		after = f.position(rows[len(rows)-1])
	}
}

func (s *Schedules) exported(ctx context.Context, tenant tenants.ID, f Filter, after Position, n int) (found []*row, full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	sql, args := f.query(tenant, after, nil, n)
	query := func() (pgx.Rows, error) {
		return s.Pool.Query(ctx, sql, args...)
	}
	found, full, err = web.Collect(ctx, n, exportBytes, query, scanRow, (*row).held)
	if err != nil {
		return nil, false, fmt.Errorf("export schedules: %w", err)
	}
	return found, full, nil
}

// line returns the row as a line of a bulk upsert. Line breaks, which JSON allows only between its tokens, become spaces.
func (r *row) line() ([]byte, error) {
	stated, delivery := r.Stored.Stated()
	list := []member{{"workflow", nil}, {"key", nil}, {"spec", json.RawMessage(r.Spec)}, {"policy", nil}, {"delivery", nil}}
	values := map[string]any{"workflow": r.Workflow, "key": r.Key, "policy": stated, "delivery": delivery}
	if r.Subject != nil {
		list, values["subject"] = append(list, member{"subject", nil}), *r.Subject
	}
	if len(r.Labels) > 0 {
		list, values["labels"] = append(list, member{"labels", nil}), r.Labels
	}
	if r.Note != nil {
		list, values["note"] = append(list, member{"note", nil}), *r.Note
	}
	if r.Status == policy.Paused {
		list, values["status"] = append(list, member{"status", nil}), policy.Paused
	}
	for i, m := range list {
		if m.value != nil {
			continue
		}
		text, err := json.Marshal(values[m.name])
		if err != nil {
			return nil, fmt.Errorf("write %s of schedule %d: %w", m.name, r.ID, err)
		}
		list[i].value = text
	}
	if r.Payload != nil {
		list = append(list, member{"payload", json.RawMessage(*r.Payload)})
	}
	text, err := object(list)
	if err != nil {
		return nil, fmt.Errorf("write schedule %d: %w", r.ID, err)
	}
	return bytes.Map(func(c rune) rune {
		if c == '\n' || c == '\r' {
			return ' '
		}
		return c
	}, text), nil
}
