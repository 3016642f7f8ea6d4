//go:build !mutant

package sabotage

// On reports whether the bug is turned on: never.
func (Bug) On() bool { return false }

// Without returns sql unchanged.
func (Bug) Without(sql, _ string) string { return sql }

// Instead returns sql unchanged.
func (Bug) Instead(sql, _, _ string) string { return sql }
