package postgres

// Waiting reports whether any call waits for a connection.
func (w *Wall) Waiting() bool { return w.shares.waiting() }
