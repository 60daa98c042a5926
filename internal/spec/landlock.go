package spec

import "slices"

// landlock derives the second wall from the mounts. Rules add up along a path,
// so a rule is only needed where something is added; that a protected path
// below a writable one stays as it is, is the work of its read-only mount.
func (c *compiler) landlock() {
	l := &c.spec.Landlock
	l.MinABI = 1
	if c.spec.Network == NetworkHost {
		// Without a network namespace nothing else keeps abstract sockets apart.
		l.MinABI = 6
	}
	l.ScopeAbstract, l.ScopeSignals = true, true
	// The directories that only lead to mounts can be listed, and hold no files.
	l.Rules = append(l.Rules, LandlockRule{Path: "/", List: true})
	truncates := c.spec.Broker != nil && len(c.spec.Broker.Areas) > 0
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		rule := LandlockRule{Path: m.Target, File: m.File, Read: true, Truncate: truncates}
		switch {
		case m.Kind == Bind || m.Kind == Private || m.Kind == Tmpfs:
			rule.Write = m.access() > AccessRead
			if rule.Write && c.isBrokered(m) {
				rule.Write, rule.Remove = false, !c.spec.Broker.Strict
			}
			rule.Execute = c.executable(m.Target)
			rule.Device = m.Devices
		case m.Kind == Dev:
			rule.Write, rule.Device = true, true
		case m.Kind != Proc:
			continue
		}
		l.add(rule)
	}
	c.executeRules()
}

// isBrokered says whether the command makes and writes files of a mount only
// through the broker.
func (c *compiler) isBrokered(m *Mount) bool {
	b := c.spec.Broker
	return b != nil && !m.File && !c.spec.IsFree(m) &&
		slices.ContainsFunc(b.Areas, func(area string) bool { return Covers(area, m.Target) })
}

// add leaves out a rule that adds nothing to those above it.
func (l *Landlock) add(rule LandlockRule) {
	var have LandlockRule
	for _, r := range l.Rules {
		if Covers(r.Path, rule.Path) {
			have.Read = have.Read || r.Read
			have.Write = have.Write || r.Write
			have.Remove = have.Remove || r.Write || r.Remove
			have.Execute = have.Execute || r.Execute
			have.Device = have.Device || r.Device
		}
	}
	if rule.Read && !have.Read || rule.Write && !have.Write || rule.Remove && !have.Remove || rule.Execute && !have.Execute || rule.Device && !have.Device {
		l.Rules = append(l.Rules, rule)
	}
}

// executeRules let programs be executed from what allowExecute names inside a
// directory that is not executable as a whole.
func (c *compiler) executeRules() {
	for _, l := range c.layers {
		for _, r := range l.execute {
			a, m := c.spec.Access(r.path)
			if m.showsHost() && c.executable(r.path) {
				c.spec.Landlock.add(LandlockRule{
					Path: r.path, File: r.info.Type != TypeDirectory,
					Read: true, Write: a > AccessRead && !c.isBrokered(m), Execute: true,
				})
			}
		}
	}
}

// executable says whether every layer lets programs below a path be executed.
func (c *compiler) executable(p string) bool {
	if isSystem(p) {
		return true
	}
	for _, l := range c.layers {
		if l.execute == nil {
			continue
		}
		allowed := false
		for i := range l.execute {
			allowed = allowed || Covers(l.execute[i].path, p)
		}
		if !allowed {
			return false
		}
	}
	return true
}

// isSystem says whether a path holds the system's own programs and libraries.
func isSystem(p string) bool {
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if Covers(dir, p) {
			return true
		}
	}
	return false
}
