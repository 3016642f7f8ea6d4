// Package clienttest tests the SDK against the server of package carillontest. It is in that module because the SDK requires no other module,
// not even for its tests.
package clienttest
