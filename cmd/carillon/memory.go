package main

import (
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory makes the garbage collector keep below nine tenths of what provider says: the memory limit of the control group.
// GOMEMLIMIT wins over it. It returns what the process may use; 0: any amount.
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
