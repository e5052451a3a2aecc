"""An embedded engine, an embedded GPU and traffic: the main job without hardware."""
