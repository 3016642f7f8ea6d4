package cluster

// View is what a process knows of the other processes, and how it reaches them.
type View struct {
	Member   *Member
	Notifier *Notifier
	Horizon  *Horizon
}
