package record

import (
	"github.com/carillonhq/carillon/internal/ident"
)

// Try names one attempt at one tick. Answer: it is not to be sent, its worker should have answered by now.
type Try struct {
	ident.TickKey
	Attempt int16
	Answer  bool
}
