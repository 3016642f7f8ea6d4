//go:build !race

package calendar

const slowness = 2
