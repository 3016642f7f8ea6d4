package dispatch

import (
	"github.com/carillonhq/carillon/internal/ident"
)

// try names one attempt at one tick. Answer: it is not to be sent, its worker should have answered by now.
type try struct {
	ident.TickKey
	Attempt int16
	Answer  bool
}
