package web

// ListAnswer is one page of a list as JSON. NextCursor is null on the last page.
type ListAnswer[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

// Paging describes the requested page of a list. It encrypts the cursor of the next page.
type Paging struct {
	cursors *Cursor
	tenant  int32
	list    string
	limit   int
}

// Page returns the Paging for a page of at most limit items. list identifies the list with all its filters. Page decrypts the cursor's
// position into after. An empty cursor means the first page, and leaves after unchanged.
func (c *Cursor) Page(tenant int32, list string, limit int, cursor string, after any) (Paging, error) {
	p := Paging{c, tenant, list, limit}
	if cursor == "" {
		return p, nil
	}
	return p, c.Open(tenant, list, cursor, after)
}

// Rows returns how many rows to read for the page: one more than its limit, which shows whether another page follows.
func (p Paging) Rows() int { return p.limit + 1 }

// Next returns the cursor of the page after a position.
func (p Paging) Next(position any) (*string, error) {
	sealed, err := p.cursors.Seal(p.tenant, p.list, position)
	return &sealed, err
}

// Cut returns the page's items from the found rows, and the cursor of the next page, or nil on the last page. full means that the read
// stopped early, so that more rows may follow. position returns the position of an item in the list.
func Cut[T, P any](p Paging, found []T, full bool, position func(T) P) (page []T, next *string, err error) {
	page, more := Trim(found, p.limit, full)
	if !more {
		return page, nil, nil
	}
	next, err = p.Next(position(page[len(page)-1]))
	return page, next, err
}

// Trim returns the first limit rows, and reports whether more follow. full means that the read stopped early.
func Trim[T any](found []T, limit int, full bool) (page []T, more bool) {
	return found[:min(limit, len(found))], full || len(found) > limit
}
