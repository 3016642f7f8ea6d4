//go:build race

package calendar

const slowness = 20 // how much slower than in production the tests may run
