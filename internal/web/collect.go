package web

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Collect reads the rows of a query, at most n, until they hold most bytes or until the tenant reaches its share. full reports that it
// stopped before the last row. It returns an error if the first row does not fit. size returns the bytes of a row's long texts. Before
// the query, which takes a connection of the database, a large page waits for the other large pages of its tenant; many bytes are then
// read in a turn.
func Collect[T any](ctx context.Context, n, most int, query func() (pgx.Rows, error), scan pgx.RowToFunc[T], size func(T) int) (found []T, full bool, err error) {
	end, err := beginPage(ctx, n)
	if err != nil {
		return nil, false, err
	}
	defer end()
	rows, err := query()
	if err != nil {
		return nil, false, fmt.Errorf("read rows: %w", err)
	}
	defer rows.Close()
	hold := NewHold(ctx, most)
	t := turn{account: hold.account}
	defer t.end()
	for rows.Next() {
		if hold.held >= muchWork {
			if err := t.begin(ctx); err != nil {
				return nil, false, err
			}
		}
		one, err := scan(rows)
		if err != nil {
			return nil, false, err
		}
		if err := hold.Take(size(one)); err != nil {
			if len(found) == 0 {
				return nil, false, err
			}
			return found, true, nil
		}
		found = append(found, one)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("read rows: %w", err)
	}
	return found, false, nil
}
