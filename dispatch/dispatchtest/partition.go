package dispatchtest

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
)

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
