package postgres

// Waiting reports whether any call waits for a connection.
func (p *TenantPool) Waiting() bool { return p.shares.waiting() }
