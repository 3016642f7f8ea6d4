// Package operations runs the long work of tenants in steps.
//
// A feature registers a kind of work with its [Step]. [Operations.Begin] records an operation in the transaction of the request
// that asks for it. Any process then does it step by step: each step is a short transaction, which commits what it did together
// with where the next step begins, so that no part is done twice. A crash between two steps loses nothing: another process goes on
// from the last commit.
//
// Table: operation. Lock: an advisory lock of the operation, held by the process that does a step.
package operations
