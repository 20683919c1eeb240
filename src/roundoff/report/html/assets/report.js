/* built from web/ */
