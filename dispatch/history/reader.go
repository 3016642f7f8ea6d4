package history

import (
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/tail"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// Config is what a Reader needs. All fields are required.
type Config struct {
	API     postgres.DB
	IDs     ident.Codec
	Cursors *web.Cursor
	Quotas  record.Quotas
	Timings *cohorts.Timings
	Tail    *tail.Tail
}

// Reader reads the record of ticks. It is safe for concurrent use.
type Reader struct {
	api     postgres.DB
	ids     ident.Codec
	cursors *web.Cursor
	quotas  record.Quotas
	timings *cohorts.Timings
	tail    *tail.Tail
}

// New returns a Reader.
func New(c Config) *Reader {
	return &Reader{api: c.API, ids: c.IDs, cursors: c.Cursors, quotas: c.Quotas, timings: c.Timings, tail: c.Tail}
}
