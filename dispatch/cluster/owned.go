package cluster

import (
	"github.com/carillonhq/carillon/internal/postgres"
)

// knownProcesses are the processes that beat within the last minute. Of others upkeep deletes the rows, and their chunks are those of
// nobody. They are read from that time on: while an old snapshot is open, the table keeps a dead row of each beat.
const KnownProcesses = `SELECT id FROM process WHERE beat_at > (SELECT ` + postgres.Now + `) - interval '1 minute'`
