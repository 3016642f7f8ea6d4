package postgres

// Unfolded returns an SQL condition for the rows of a table that are not folded yet. Folded rows stay in the table as dead rows while
// an old snapshot is open. The condition skips them: it begins at the transaction id before which every row is folded. LEAST matters
// after a restore into a cluster with lower transaction ids.
func Unfolded(table string) string {
	return `xact >= LEAST((SELECT before FROM folded WHERE source = '` + table + `'), pg_snapshot_xmin(pg_current_snapshot()))`
}

// Fold returns the beginning of a statement that folds (deletes and sums up) at most $1 rows of a table. Its common table taken
// returns the given columns of the deleted rows.
//
// If it takes all rows, no row remains of a transaction that ended before the statement, so Fold moves the mark in table folded, and
// the next fold begins there. Each move of the mark leaves a dead row. So a fold of few rows moves it at most every ten seconds, and
// an empty fold once a minute.
func Fold(table, columns string) string {
	return `
			WITH picked AS MATERIALIZED (
				SELECT ctid AS place FROM ` + table + ` WHERE ` + Unfolded(table) + ` ORDER BY xact LIMIT $1
			), risen AS (
				UPDATE folded
				SET before = pg_snapshot_xmin(pg_current_snapshot()), at = ` + Now + `
				FROM (SELECT count(*) AS n FROM picked) p
				WHERE source = '` + table + `' AND p.n < $1 AND (before > pg_snapshot_xmin(pg_current_snapshot()) OR before < pg_snapshot_xmin(pg_current_snapshot())
					AND (p.n >= 100 OR at < (SELECT ` + Now + `) - CASE p.n WHEN 0 THEN interval '1 minute' ELSE interval '10 seconds' END))
			), taken AS (
				DELETE FROM ` + table + `
				WHERE ctid = ANY (ARRAY (SELECT place FROM picked))
				RETURNING ` + columns + `
			)`
}
