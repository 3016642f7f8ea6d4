package postgres

// All SQL of the server reads the time through these expressions. A test build can replace them by a clock that is shifted or runs
// faster.
const (
	// Now returns the time at which PostgreSQL evaluates the expression.
	Now = "clock_timestamp()"

	// StatementNow returns the time at which the statement arrived. It is not later than the statement's snapshot.
	StatementNow = "statement_timestamp()"

	// TxNow returns the start time of the transaction. It is constant within a statement, so an index can search for it.
	TxNow = "now()"
)
