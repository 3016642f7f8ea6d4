package postgres

// GenericPlans makes PostgreSQL plan each statement of the transaction once for a connection, and not for each set of values. It suits
// statements that look up rows by key and are small: their planning takes longer than their work. The planner does not know the values,
// so each plan must be right for all of them. In a batch outside a transaction it acts on the later statements of the batch.
const GenericPlans = `SELECT ` + SetGenericPlans

// SetGenericPlans is GenericPlans as a part of another statement, which sets something too.
const SetGenericPlans = `set_config('plan_cache_mode', 'force_generic_plan', true)`
