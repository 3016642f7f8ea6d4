package postgres

// Unfolded is a condition that the rows of a table meet which are not folded yet. Folded rows stay in the table, dead, for as
// long as an old snapshot is open, so the table is read from the transaction on before which all are folded. LEAST counts
// after a restore into a cluster whose transactions have lower numbers.
func Unfolded(table string) string {
	return `xact >= LEAST((SELECT before FROM folded WHERE source = '` + table + `'), pg_snapshot_xmin(pg_current_snapshot()))`
}

// Fold begins a statement that folds up to $1 rows of a table: the common table taken returns some columns of them. If it
// takes all that there are, no row is left of a transaction that ended before the statement, and the next fold begins after
// it. Each move of that mark leaves a dead row, so that a fold of few rows moves it seldom, and one of none once a minute: the
// next folds then read few rows again.
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
