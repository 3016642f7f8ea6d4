// Package servertest tests the SDK against a running server. It is a module of its own, because the SDK requires no other module.
package servertest
