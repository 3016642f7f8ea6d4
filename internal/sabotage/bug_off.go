//go:build !mutant

package sabotage

// On tells whether the program has the bug: it has none.
func (Bug) On() bool { return false }

// Without returns the statement as it is.
func (Bug) Without(sql, _ string) string { return sql }

// Instead returns the statement as it is.
func (Bug) Instead(sql, _, _ string) string { return sql }
