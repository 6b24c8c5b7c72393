package protection

// Workspace is a workspace. Only Linux protects it.
type Workspace struct {
	Dir         string
	LongRunning bool
}

// RemoveUnused does nothing.
func (*Workspace) RemoveUnused() {}
