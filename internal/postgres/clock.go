package postgres

// All SQL of the server reads the time through these expressions, so that a test build can replace them by a clock that is shifted or
// runs faster.
const (
	// Now is the time at which the expression is evaluated.
	Now = "clock_timestamp()"

	// StatementNow is the time at which the client sent the statement. It is no later than the statement's snapshot.
	StatementNow = "statement_timestamp()"

	// TxNow is the time at which the transaction began. It is the same for a whole statement, so that an index can search for it.
	TxNow = "now()"
)
