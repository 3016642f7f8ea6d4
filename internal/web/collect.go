package web

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// longestQuery is how long a query keeps a turn. A slow query goes on without one, so that it does not hold up the requests of others.
const longestQuery = 50 * time.Millisecond

// Collect reads the rows of a query, at most n, until they hold most bytes or until the tenant reaches its share. full reports that it
// stopped before the last row. It returns an error if the first row does not fit. size returns the bytes of a row's long texts. Before
// the query, which takes a connection of the database, a large page waits for the other large pages of its tenant; many bytes are then
// read in a turn. If the tenant's last page had many bytes, the turn begins before the query, because the database works for them, too.
func Collect[T any](ctx context.Context, n, most int, query func() (pgx.Rows, error), scan pgx.RowToFunc[T], size func(T) int) (found []T, full bool, err error) {
	page, err := beginPage(ctx, n)
	if err != nil {
		return nil, false, err
	}
	defer page.end()
	hold := NewHold(ctx, most)
	t := turn{account: hold.account}
	defer t.end()
	keep := func() {}
	if page.expects() {
		if keep, err = t.lend(ctx, longestQuery); err != nil {
			return nil, false, err
		}
	}
	defer func() {
		keep()
		page.had(hold.held >= muchWork)
	}()
	rows, err := query()
	if err != nil {
		return nil, false, fmt.Errorf("read rows: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if hold.held >= muchWork {
			keep()
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
