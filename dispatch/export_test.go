package dispatch

import "context"

// Kill ends the process as kill -9 would: what it held stays as it is, and nobody is told.
func (d *Dispatch) Kill() {
	d.sender.mu.Lock()
	d.sender.closed = true
	d.sender.mu.Unlock()
	d.stop()
	d.sender.cancel()
	_ = d.river.StopAndCancel(context.Background())
	d.sender.working.Wait()
	close(d.results.in)
	d.results.working.Wait()
	d.work.Wait()
}
