package dispatchtest

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// MakeDays makes the partitions of the record from the day before a moment to a week after it. It tries again while a table is in use, or
// while a statement takes longer than it may hold its locks.
func (h *Carillon) MakeDays(now time.Time) {
	h.T.Helper()
	h.MakeDaysBy(h.Dispatch, now)
}

// MakeDaysBy is MakeDays by another process.
func (h *Carillon) MakeDaysBy(d *Process, now time.Time) {
	h.T.Helper()
	Until(h.T, "the days have their partitions", func() bool {
		h.Exec(`UPDATE partition_attempt SET next_at = '-infinity'`)
		err := d.EnsurePartitions(h.T.Context(), now)
		if err != nil && !HeldTooLong(err) {
			h.T.Fatal(err)
		}
		return err == nil && !h.DaysFailed()
	})
}

// DaysFailed reports whether the last attempt to make partitions has failed, so that no process tries again for some minutes.
func (h *Carillon) DaysFailed() bool {
	h.T.Helper()
	return h.Number(`SELECT count(*) FROM partition_attempt WHERE what = 'create' AND next_at > '-infinity'`) > 0
}

// HeldTooLong reports whether a change of partitions ended because one of its statements took longer than it may hold its locks.
func HeldTooLong(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "57014" // query_canceled
}

// Traced gives the processes that a test makes from now on a pool with a tracer.
func (h *Carillon) Traced(tracer pgx.QueryTracer) {
	h.T.Helper()
	config := h.Config.Pool.Config()
	config.ConnConfig.Tracer = multitracer.New(config.ConnConfig.Tracer, tracer)
	pool, err := pgxpool.NewWithConfig(h.T.Context(), config)
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(pool.Close)
	h.Config.Pool = pool
}
