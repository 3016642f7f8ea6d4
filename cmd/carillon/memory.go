package main

import (
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory sets the memory limit of the garbage collector to nine tenths of the provider's limit, that of the control group. GOMEMLIMIT
// has precedence. It returns the bytes that the process may use, 0 without a limit.
func limitMemory(provider memlimit.Provider, log *slog.Logger) int64 {
	limit, err := memlimit.Set(memlimit.WithRatio(0.9), memlimit.WithProvider(provider))
	if err != nil {
		log.Debug("no memory limit was found", "error", err)
	}
	if limit == math.MaxInt64 {
		return 0
	}
	log.Info("memory is limited", "bytes", limit)
	return limit
}
