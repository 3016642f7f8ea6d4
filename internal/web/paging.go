package web

// ListAnswer is the answer with one page of a list. NextCursor is null on the last page.
type ListAnswer[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

// Paging describes the page of a list that a request asks for. It seals the cursor of the next page.
type Paging struct {
	cursors *Cursor
	tenant  int32
	list    string
	limit   int
}

// Page returns the Paging for a page of at most limit items. The list's name holds all its filters. Page reads the position
// that the cursor seals into after, and leaves after as it is if the cursor is empty: that is the first page.
func (c *Cursor) Page(tenant int32, list string, limit int, cursor string, after any) (Paging, error) {
	p := Paging{c, tenant, list, limit}
	if cursor == "" {
		return p, nil
	}
	return p, c.Open(tenant, list, cursor, after)
}

// Rows returns how many rows to read for the page: one more than it holds shows that another page follows.
func (p Paging) Rows() int { return p.limit + 1 }

// Next returns the cursor of the page that follows a position.
func (p Paging) Next(position any) (*string, error) {
	sealed, err := p.cursors.Seal(p.tenant, p.list, position)
	return &sealed, err
}

// Cut returns the items of the page out of the rows that were found, and the cursor of the next page: nil if this is the last one.
// Full says that the read stopped early, so that more may follow. Position returns the position of an item in the list.
func Cut[T, P any](p Paging, found []T, full bool, position func(T) P) (page []T, next *string, err error) {
	page, more := Trim(found, p.limit, full)
	if !more {
		return page, nil, nil
	}
	next, err = p.Next(position(page[len(page)-1]))
	return page, next, err
}

// Trim returns the first limit of the rows that were found, and reports whether more follow. Full says that the read stopped
// early.
func Trim[T any](found []T, limit int, full bool) (page []T, more bool) {
	return found[:min(limit, len(found))], full || len(found) > limit
}
