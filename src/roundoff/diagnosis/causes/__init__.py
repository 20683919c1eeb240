"""The causes there are; loading this package registers them all."""
